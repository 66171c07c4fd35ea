import asyncio
import httpx
from fastapi import FastAPI

app = FastAPI()
client = httpx.AsyncClient(timeout=2)


@app.post("/orders")
async def place_order(order: dict):
    stock = await client.post("http://stock:8081/take", json={"item": order["item"]})
    payment = await client.post("http://payment:8082/pay", json={"amount": stock.json()["price"]})
    await notify(order["user"])
    if payment.status_code != 200:
        return {"status": "refused", "code": payment.status_code}
    return {"status": "placed", "left": stock.json()["left"], "paid": 12.5}


async def notify(user):
    time = asyncio.get_running_loop().time()
    await client.post("http://mail:8083/send", json={"to": user, "at": time})
